//! Program of `scripts/kills`.
fn main() -> std::process::ExitCode {
    bench::kills::main()
}
