//! Declares `cfg(loom)`, so that the compiler warns of unknown names only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(loom)");
}
