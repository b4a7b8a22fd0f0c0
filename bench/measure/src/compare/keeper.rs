//! The cost of holding the private keys in the keeper: full handshakes, with the keeper and without it.

use crate::compare::http::{self, SMALL, Site};
use crate::compare::loads::handshakes;
use crate::compare::peers;
use crate::compare::peers::Content;
use crate::compare::rounds::{Contestant, Rounds};
use crate::compare::server::{Bench, Server};
use crate::compare::tls::{certificate, openssl_config};
use crate::compare::tls_client::Tickets;
use crate::page;
use anyhow::Context;

/// The length of each request's file.
const CONTENT_BYTES: usize = 512;
const TITLE: &str = "full handshake";

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<String> {
    let folder = rounds.bench.folder.join("keeper");
    let openssl = openssl_config(&folder)?;
    let bench = Bench { certificate: Some(certificate(&folder, &openssl)?), ..rounds.bench.clone() };
    let content = Content::Site(Site::create(&folder.join("site"), 0)?.root);
    let start = |name: &'static str, marks: &'static [&'static str]| -> anyhow::Result<Server> {
        let bench = Bench { marks, ..bench.clone() };
        let place = bench.place(name, 1)?;
        // The second one, after the floor.
        let mut server = bench.start(&peers::HTTP[1], place, &content, http::answers)?;
        server.name = name;
        Ok(server)
    };
    let servers = [start("keeper", &[])?, start("in-process", &["in-process"])?];
    let contestant = |server| -> anyhow::Result<Contestant<'_>> {
        let address = Server::tls_address(server)?;
        Ok(Contestant { server, load: handshakes(address, SMALL, CONTENT_BYTES, Tickets::Ignored, rounds.length)? })
    };
    let contestants: Vec<Contestant<'_>> = servers.iter().map(contestant).collect::<anyhow::Result<_>>()?;
    let outcome = rounds.compare(TITLE, &contestants, false);
    let [keeper, in_process] =
        ["keeper", "in-process"].map(|name| outcome.row(name).and_then(|row| Some((row, row.cost_us()?))));
    let ((keeper, keeper_us), (in_process, in_process_us)) =
        keeper.zip(in_process).context("a server has answered no handshake")?;
    let ratio = keeper.ratio_to(in_process).context("no round has both")?;
    let head = ["", "keys = \"keeper\", µs", "keys = \"in-process\", µs", "ratio"];
    let row = [TITLE.to_owned(), keeper_us.to_string(), in_process_us.to_string(), ratio.to_string()];
    Ok(format!(
        "Processor time of all processes for a full handshake with one request; the ratio must be 1.12 at most.\n\n{}",
        page::table(&head, &[row.to_vec()])
    ))
}
