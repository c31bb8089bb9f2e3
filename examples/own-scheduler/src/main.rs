//! The whole command `anabranch`, with the schedulers of this crate among its own.

fn main() -> std::process::ExitCode {
    anabranch_cli::main(own_scheduler::registry())
}
