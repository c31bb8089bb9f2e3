//! The agent as a program of its own: answers on standard output what is asked on standard input.

fn main() -> std::io::Result<()> {
    anabranch_agent::serve_stdio()
}
