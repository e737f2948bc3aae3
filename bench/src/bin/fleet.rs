//! Program of `scripts/bench fleet`.
fn main() {
    bench::fleet::main();
}
