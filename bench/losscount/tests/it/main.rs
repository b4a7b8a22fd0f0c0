//! Loads against servers that are right, and that are wrong in every way, each as often as they are told.

mod streams;
mod datagrams;
mod running;
mod parsers;
mod command_line;
mod loads;
mod fake_streams;
mod fake_datagrams;
mod answers;
