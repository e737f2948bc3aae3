//! Program of `scripts/bench http`.
fn main() {
    bench::http::main();
}
