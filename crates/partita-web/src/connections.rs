//! Who is connected.

use axum::Json;
use axum::extract::State;
use partita_hub::server::{ConnectionInfo, LinkInfo};
use serde::Serialize;

use crate::Web;

#[derive(Serialize)]
pub(crate) struct ConnectionList {
    connections: Vec<ConnectionView>,
}

#[derive(Serialize)]
struct ConnectionView {
    id: u64,
    peer: String,
    container_id: String,
    since: String,
    links: Vec<LinkView>,
}

#[derive(Serialize)]
struct LinkView {
    address: String,
    role: String,
}

pub(crate) async fn list(State(web): State<Web>) -> Json<ConnectionList> {
    let link = |link: LinkInfo| LinkView { address: link.address, role: link.role.to_string() };
    let view = |info: ConnectionInfo| ConnectionView {
        id: info.id,
        peer: info.peer,
        container_id: info.container_id,
        since: info.since.to_string(),
        links: info.links.into_iter().map(link).collect(),
    };
    Json(ConnectionList { connections: web.server.connections().into_iter().map(view).collect() })
}
