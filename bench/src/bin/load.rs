//! Program of `scripts/bench`.
fn main() {
    bench::load::main();
}
