//! The API as a client sees it: requests in, status and JSON out.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use partita_hub::broker::Broker;
use partita_hub::log::Retention;
use partita_hub::server::{Server, ServerOptions};
use partita_hub::service::auth::{Key, Rules, WELL_KNOWN_KEY, WELL_KNOWN_NAME, sign};
use partita_web::{Web, WebOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tower::ServiceExt;

fn web(local: bool) -> Web {
    let broker = Broker::in_memory(16 << 20).expect("opens");
    let options =
        WebOptions { rules: Rules::default(), local, retention: Retention::default(), connections_max: 256 };
    Web::new(Server::new(Arc::new(broker), ServerOptions::default()), options)
}

async fn call(web: &Web, request: Request<Body>) -> (StatusCode, Value) {
    let response = web.router().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") })
}

fn request(method: &str, path: &str, body: Option<Value>) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost:5300");
    match body {
        Some(body) => builder.header("content-type", "application/json").body(Body::from(body.to_string())),
        None => builder.body(Body::empty()),
    }
    .unwrap()
}

async fn get(web: &Web, path: &str) -> (StatusCode, Value) {
    call(web, request("GET", path, None)).await
}

async fn post(web: &Web, path: &str, body: Value) -> (StatusCode, Value) {
    call(web, request("POST", path, Some(body))).await
}

fn said((status, body): (StatusCode, Value)) -> (u16, String, String) {
    let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    (status.as_u16(), text("code"), text("message"))
}

#[tokio::test]
async fn the_health_check_answers_in_the_emulators_words() {
    let web = web(true);
    // Whatever name a container's probe uses.
    let probe = || {
        Request::builder()
            .uri("/health")
            .header("host", "eventhubs-emulator:5300")
            .body(Body::empty())
            .unwrap()
    };
    let response = web.router().oneshot(probe()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/json"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, r#"{"status":"healthy","message":"Service is healthy."}"#.as_bytes());
    web.stop();
    let (status, body) = call(&web, probe()).await;
    assert_eq!(status, 503);
    assert_eq!(
        body,
        json!({"status": "unhealthy", "message": "Service not available. Please try after some time."})
    );
}

#[tokio::test]
async fn a_hub_is_made_described_changed_and_deleted() {
    let web = web(true);
    let asked =
        json!({"name": "eh1", "partition_count": 2, "consumer_groups": ["cg1"], "retention_seconds": 60});
    let (status, hub) = post(&web, "/api/v1/hubs", asked.clone()).await;
    assert_eq!(status, 201);
    assert_eq!(hub["consumer_groups"], json!(["$Default", "cg1"]));
    assert_eq!((&hub["retention_seconds"], &hub["events"]), (&json!(60), &json!(0)));
    assert_eq!(
        hub["partitions"][1],
        json!({"id": "1", "is_empty": true, "beginning_sequence_number": 0, "last_enqueued_sequence_number": null,
               "last_enqueued_offset": null, "last_enqueued_on": null, "lost": []})
    );
    assert_eq!(said(post(&web, "/api/v1/hubs", asked).await).1, "hub-exists");

    let changes = json!({"partition_count": 4, "retention_bytes": 1_000_000});
    let (status, hub) = call(&web, request("PATCH", "/api/v1/hubs/EH1", Some(changes))).await;
    assert_eq!(
        (status.as_u16(), &hub["partition_count"], &hub["retention_bytes"]),
        (200, &json!(4), &json!(1_000_000))
    );
    assert_eq!(hub["retention_seconds"], 60, "what is not named stays");
    for disabled in [true, false] {
        let asked = Some(json!({"disabled": disabled}));
        let (status, hub) = call(&web, request("PATCH", "/api/v1/hubs/eh1", asked)).await;
        assert_eq!((status.as_u16(), &hub["disabled"]), (200, &json!(disabled)));
    }
    let fewer = call(&web, request("PATCH", "/api/v1/hubs/eh1", Some(json!({"partition_count": 1})))).await;
    assert_eq!(said(fewer).1, "fewer-partitions");

    assert_eq!(post(&web, "/api/v1/hubs/eh1/groups", json!({"name": "cg2"})).await.0, 201);
    assert_eq!(post(&web, "/api/v1/hubs/eh1/groups", json!({"name": "CG2"})).await.0, 200, "there already");
    assert_eq!(call(&web, request("DELETE", "/api/v1/hubs/eh1/groups/cg1", None)).await.0, 204);
    assert_eq!(said(call(&web, request("DELETE", "/api/v1/hubs/eh1/groups/cg1", None)).await).1, "no-group");
    let builtin = call(&web, request("DELETE", "/api/v1/hubs/eh1/groups/$Default", None)).await;
    assert_eq!(said(builtin).1, "default-group");

    let (_, list) = get(&web, "/api/v1/hubs").await;
    assert_eq!(list["hubs"].as_array().unwrap().len(), 1);
    assert_eq!(list["hubs"][0]["consumer_groups"], json!(["$Default", "cg2"]));
    assert_eq!(call(&web, request("DELETE", "/api/v1/hubs/eh1", None)).await.0, 204);
    assert_eq!(
        said(get(&web, "/api/v1/hubs/eh1").await),
        (404, "no-hub".into(), "there is no hub 'eh1'".into())
    );
}

#[tokio::test]
async fn what_cannot_be_read_or_done_is_said_in_one_sentence() {
    let web = web(true);
    let bad = |body| post(&web, "/api/v1/hubs", body);
    assert_eq!(said(bad(json!({"name": "e/h"})).await).1, "bad-name");
    assert_eq!(said(bad(json!({"name": "eh1", "consumer_groups": ["c/g"]})).await).1, "bad-name");
    assert_eq!(get(&web, "/api/v1/hubs").await.1, json!({"hubs": []}), "a bad group leaves no hub behind");
    let (status, _, message) = said(bad(json!({"name": "eh1", "partition_count": 5_000})).await);
    assert!(status == 400 && message.contains("1 to 1024 partitions"), "{message}");
    let (status, _, message) = said(bad(json!({"name": "eh1", "partitions": 5})).await);
    assert!(status == 400 && message.contains("unknown field `partitions`"), "{message}");
    let (status, _, message) = said(bad(json!({})).await);
    assert!(status == 400 && message.contains("missing field `name`"), "{message}");
    let huge = json!({"name": "x".repeat(100_000)});
    assert_eq!(bad(huge).await.0, 413);
    let form = Request::builder().method("POST").uri("/api/v1/hubs").header("host", "localhost");
    let form = form.header("content-type", "text/plain").body(Body::from(r#"{"name":"eh1"}"#)).unwrap();
    assert_eq!(call(&web, form).await.0, 415, "what a form of a page could send");
    assert_eq!(said(get(&web, "/api/v1/nothing").await).1, "not-found");
    assert_eq!(said(get(&web, "/").await).1, "not-found");
    assert_eq!(call(&web, request("PUT", "/api/v1/hubs", None)).await.0, 405);
}

#[tokio::test]
async fn faults_come_and_go() {
    let web = web(true);
    post(&web, "/api/v1/hubs", json!({"name": "eh1", "partition_count": 2})).await;
    let (status, detach) =
        post(&web, "/api/v1/faults", json!({"kind": "detach", "hub": "eh1", "count": 3})).await;
    assert_eq!(status, 201);
    assert_eq!((&detach["condition"], &detach["hits"]), (&json!("amqp:link:detach-forced"), &json!(0)));
    let delay = json!({"kind": "delay", "delay_ms": 250, "role": "sender", "hub": "eh1", "partition": 1, "for_ms": 60_000});
    let (_, delay) = post(&web, "/api/v1/faults", delay).await;
    assert_eq!(
        (&delay["delay_ms"], &delay["partition"], &delay["role"]),
        (&json!(250), &json!("1"), &json!("sender"))
    );
    let (_, list) = get(&web, "/api/v1/faults").await;
    assert_eq!(list["faults"].as_array().unwrap().len(), 2);
    let path = format!("/api/v1/faults/{}", detach["id"]);
    assert_eq!(call(&web, request("DELETE", &path, None)).await.0, 204);
    assert_eq!(said(call(&web, request("DELETE", &path, None)).await).1, "no-fault");
    assert_eq!(call(&web, request("DELETE", "/api/v1/faults", None)).await.0, 204);
    assert_eq!(get(&web, "/api/v1/faults").await.1, json!({"faults": []}));
}

#[tokio::test]
async fn faults_that_could_never_strike_are_refused() {
    let web = web(true);
    post(&web, "/api/v1/hubs", json!({"name": "eh1", "partition_count": 2})).await;
    for (asked, part) in [
        (json!({"kind": "busy", "hub": "eh2"}), "there is no hub 'eh2'"),
        (json!({"kind": "busy", "hub": "eh1", "partition": 2}), "hub 'eh1' has no partition 2, it has 2"),
        (json!({"kind": "delay"}), "a delay needs delay_ms"),
        (json!({"kind": "busy", "delay_ms": 1}), "delay_ms belongs to a fault of kind delay"),
        (json!({"kind": "drop", "condition": "x"}), "condition belongs to a fault of kind detach"),
        (json!({"kind": "explode"}), "unknown variant `explode`"),
    ] {
        let (status, _, message) = said(post(&web, "/api/v1/faults", asked.clone()).await);
        assert!((400..500).contains(&status) && message.contains(part), "{asked}: {message}");
    }
    assert_eq!(get(&web, "/api/v1/faults").await.1, json!({"faults": []}));
}

#[tokio::test]
async fn pages_of_other_sites_reach_nothing_but_the_health_check() {
    let web = web(true);
    let from = |path: &str, origin: &str| {
        Request::builder()
            .uri(path)
            .header("host", "localhost:5300")
            .header("origin", origin)
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(call(&web, from("/api/v1/hubs", "https://evil.example")).await.0, 403);
    assert_eq!(call(&web, from("/api/v1/hubs", "http://localhost:5300")).await.0, 200);
    let rebound =
        Request::builder().uri("/api/v1/hubs").header("host", "evil.example").body(Body::empty()).unwrap();
    assert_eq!(call(&web, rebound).await.0, 403);
}

#[tokio::test]
async fn where_others_can_connect_every_call_needs_a_key() {
    let web = web(false);
    let ask = |authorization: Option<String>| {
        let mut builder = Request::builder().uri("/api/v1/hubs").header("host", "hub.example:5300");
        if let Some(authorization) = authorization {
            builder = builder.header("authorization", authorization);
        }
        builder.body(Body::empty()).unwrap()
    };
    let refused = web.router().oneshot(ask(None)).await.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(refused.headers().contains_key("www-authenticate"));
    let expires = partita_core::model::Timestamp(partita_core::model::Timestamp::now().0 + 60_000);
    let token = |key: &str| sign("sb://hub.example/", WELL_KNOWN_NAME, &Key::new(key), expires);
    assert_eq!(call(&web, ask(Some(token("guess")))).await.0, 401);
    assert_eq!(call(&web, ask(Some(token(WELL_KNOWN_KEY)))).await.0, 200);
    assert_eq!(get(&web, "/health").await.0, 200, "but for the health check");
}

/// Time is simulated: it passes when nobody has anything to do.
#[tokio::test(start_paused = true)]
async fn clients_that_send_nothing_or_half_do_not_keep_others_out_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(web(true).serve(listener));
    let began = tokio::time::Instant::now();
    let mut silent = Vec::new();
    for at in 0..600 {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        if at < 300 {
            // A body that never comes.
            let head = b"POST /api/v1/hubs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
            tcp.write_all(head).await.unwrap();
        }
        silent.push(tcp);
    }
    let ask = async {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask.await;
    assert!(began.elapsed() < Duration::from_secs(600), "after {:?}", began.elapsed());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    serving.abort();
}

#[tokio::test]
async fn the_health_check_is_answered_beside_clients_that_never_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let web = web(true);
    // A long answer: it fills what the system keeps for a client.
    post(&web, "/api/v1/hubs", json!({"name": "eh1", "partition_count": 128})).await;
    let serving = tokio::spawn(web.serve(listener));
    let mut deaf = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut tcp = socket.connect(address).await.unwrap();
        let asked = "GET /api/v1/hubs/eh1 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10);
        tcp.write_all(asked.as_bytes()).await.unwrap();
        deaf.push(tcp);
    }
    let ask = async {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), ask).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    serving.abort();
}
