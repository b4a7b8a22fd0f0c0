//! Loads on servers that behave correctly, and that misbehave in every way a fixed number of times.

mod streams;
mod datagrams;
mod running;
mod fake;
