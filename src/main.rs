fn main() -> std::process::ExitCode {
    bitproof::cli::main()
}
