//! Tells the compiler that `cfg(loom)` is a name we know, so that it can warn of the ones we do not.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
}
