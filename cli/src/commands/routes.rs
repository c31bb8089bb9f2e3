//! `anabranch routes`: source-address routing, planned, applied and reverted.

use crate::args::Routes;
use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_net::error::NetlinkError;
use anabranch_net::interfaces::{self, Interface};
use anabranch_net::routes::{self, Plan, Routing};
use nix::errno::Errno;

/// Runs the command.
pub(crate) async fn run(command: &Routes) -> Outcome {
    match command {
        Routes::Plan => {
            let plan = plan().await?;
            if plan.is_empty() {
                output::say("nothing to change");
            }
            output::raw(plan.to_string().as_bytes())
        }
        Routes::Apply => {
            let plan = plan().await?;
            output::raw(plan.to_string().as_bytes())?;
            routes::apply(&plan).await.map_err(|error| {
                let failure = explain(&error);
                if error.os_error() == Some(Errno::EPERM) {
                    failure
                } else {
                    failure.hint("`anabranch routes revert` removes what was done so far")
                }
            })?;
            let done = if plan.is_empty() {
                "nothing to change"
            } else {
                "applied"
            };
            output::say(format!("{done}; `anabranch routes revert` removes it"));
            Ok(())
        }
        Routes::Revert => {
            let removed = routes::revert().await.map_err(|error| explain(&error))?;
            output::raw(removed.to_string().as_bytes())?;
            output::say(if removed.is_empty() {
                "nothing to remove"
            } else {
                "removed"
            });
            Ok(())
        }
    }
}

async fn plan() -> Outcome<Plan> {
    let interfaces: Vec<Interface> = interfaces::list().await.map_err(|error| explain(&error))?;
    let (wanted, skipped) = Routing::wanted(&interfaces);
    for reason in skipped {
        output::say(format!("note: {reason}"));
    }
    let present = routes::state().await.map_err(|error| explain(&error))?;
    Ok(present.plan_to(&wanted, &interfaces))
}

fn explain(error: &NetlinkError) -> Failure {
    let failure = Failure::usage(error);
    match error.os_error() {
        Some(Errno::EPERM | Errno::EACCES) => failure.hint("run it as root, or with CAP_NET_ADMIN"),
        _ => failure,
    }
}
