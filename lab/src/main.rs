//! topolab.
fn main() {}
