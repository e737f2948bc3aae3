//! Program of `scripts/nemesis`.
fn main() -> std::process::ExitCode {
    bench::nemesis::main()
}
