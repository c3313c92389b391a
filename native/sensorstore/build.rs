//! Makes the names of src/drivers/duckdb/library.rs visible to the library that is loaded at run time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for names in ["Py*", "_Py*"] {
        println!("cargo::rustc-link-arg=-Wl,--export-dynamic-symbol={names}");
    }
}
