//! The agent as a separate program: answers requests from standard input on standard output.

fn main() -> std::io::Result<()> {
    anabranch_agent::serve_stdio()
}
