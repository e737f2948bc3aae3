//! Program of `scripts/bench git`.
fn main() {
    bench::sources::main();
}
