//! Program of `scripts/bench jobs`.
fn main() {
    bench::jobs::main();
}
