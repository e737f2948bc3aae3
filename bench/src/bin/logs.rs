//! Program of `scripts/bench logs`.
fn main() {
    bench::logs::main();
}
