//! A socket with a window of queries: what the loop needs of UDP and of TCP alike.

use crate::queries::Queries;
use crate::random::Random;
use crate::tally::Tally;
use crate::window::Window;
use std::io;
use std::os::fd::RawFd;

pub trait Channel {
    fn descriptor(&self) -> RawFd;
    fn window(&mut self) -> &mut Window;
    /// Takes what has come; whether anything had.
    fn receive(&mut self, queries: &Queries, tally: &mut Tally) -> io::Result<bool>;
    /// Fills the window and sends what is new in it.
    fn send(&mut self, queries: &Queries, random: &mut Random, tally: &mut Tally) -> io::Result<()>;
}
