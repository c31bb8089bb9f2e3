//! What a request is for: hosts, ports, scopes, and the paths that name them.

mod ask;
mod host;
mod template;

pub use ask::{Ask, IpTarget, Refusal, Scope, Templates};
pub(crate) use host::is_name;
pub use host::{Host, InvalidTarget, Target};
pub use template::{InvalidTemplate, Template};
