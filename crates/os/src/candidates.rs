//! Calls that the server itself never makes, for measuring them beside those that it makes.
//!
//! Each is a rival of a way in [`ways`](crate::fallback), or the tool of a measurement: the thread's clock, the peer at the
//! other end of a loop. They are made as directly as the server's own calls, and count what those count, so that what
//! is compared is the kernel's work. Those that a kernel may lack have a feature test that tells the kernel's error.
//!
//! Sockets in here stand on the loopback interface, on a port that the kernel chooses.

pub mod ring;
pub mod listener;
pub mod datagrams;
pub mod stream;
pub mod facts;
pub mod cloexec;
pub mod floor;
pub mod processors;
pub mod clock;
