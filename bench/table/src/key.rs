//! Says what is looked up: paths, as a web server does, or bare numbers, to see the look-up alone.

#[cfg(not(feature = "numbers"))]
mod kind {
    pub type Key = Box<[u8]>;
    /// What a look-up has at hand: borrowed, since no hit should allocate.
    pub type Look = [u8];

    pub fn key(number: usize) -> Key {
        format!("/assets/file-{number:05}.css").into_bytes().into()
    }
    pub fn own(look: &Look) -> Key {
        look.into()
    }
}

#[cfg(feature = "numbers")]
mod kind {
    pub type Key = u64;
    pub type Look = u64;

    pub fn key(number: usize) -> Key {
        number as u64
    }
    pub fn own(look: &Look) -> Key {
        *look
    }
}

pub use kind::{Key, Look, key, own};
