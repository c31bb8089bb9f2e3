//! The agent as a separate program, with the built-in schedulers and controllers: answers requests
//! from standard input on standard output.

fn main() -> std::io::Result<()> {
    anabranch_agent::serve_stdio(std::sync::Arc::default())
}
