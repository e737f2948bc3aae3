//! Program of `scripts/bench scale`.
fn main() {
    bench::scale::main();
}
