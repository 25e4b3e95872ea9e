//! Performatives against another implementation: it reads what we write, and we read what it writes, and it is the same.

use std::sync::Arc;

use fe2o3_amqp_types::definitions::{self as theirs_definitions, AmqpError, ErrorCondition};
use fe2o3_amqp_types::messaging as theirs_messaging;
use fe2o3_amqp_types::performatives as theirs;
use partita_core::model::Value;
use proptest::prelude::*;
use serde_amqp::serde::Serialize;
use serde_amqp::serde::de::DeserializeOwned;

use super::tests::{encoded, performative};
use super::*;
use crate::message::Map;
use crate::types::Symbol;

// ---- only what both can say -----------------------------------------------------------------------------------

/// Keys once, and values that are simple.
fn tame_map(map: &mut Map) {
    let pair = |at| (Symbol::from(format!("key{at}")).into(), Value::Long(at as i64));
    *map = (0..map.len()).map(pair).collect();
}

fn tame_error(error: Option<&mut Error>) {
    if let Some(error) = error {
        tame_map(&mut error.info);
    }
}

fn tame_state(state: &mut Option<DeliveryState>) {
    match state {
        Some(DeliveryState::Rejected(error)) => tame_error(error.as_deref_mut()),
        Some(DeliveryState::Modified { annotations, .. }) => tame_map(annotations),
        Some(DeliveryState::Other(_)) => *state = None,
        _ => {}
    }
}

fn tame_terminus(durable: &mut u32, expiry: &mut Option<Symbol>, properties: &mut Map) {
    *durable %= 3;
    *expiry = Some(Symbol::from(if *durable == 0 { "never" } else { "link-detach" }));
    tame_map(properties);
}

fn tame_source(source: &mut Source) {
    tame_terminus(&mut source.durable, &mut source.expiry_policy, &mut source.dynamic_node_properties);
    source.distribution_mode = source.distribution_mode.as_ref().map(|_| "copy".into());
    source.default_outcome = Value::Null;
    if source.filter != Value::Null {
        let text = Value::from("amqp.annotation.x-opt-offset > '-1'");
        let filter = Value::Described(Box::new(Value::Ulong(0x468c_0000_0004)), Box::new(text));
        source.filter = Value::Map(vec![(Symbol::from("apache.org:selector-filter:string").into(), filter)]);
    }
}

fn tame(mut performative: Performative) -> Performative {
    match &mut performative {
        Performative::Open(open) => tame_map(&mut open.properties),
        Performative::Begin(begin) => tame_map(&mut begin.properties),
        Performative::Flow(flow) => tame_map(&mut flow.properties),
        Performative::Transfer(transfer) => tame_state(&mut transfer.state),
        Performative::Disposition(disposition) => tame_state(&mut disposition.state),
        Performative::Detach(detach) => tame_error(detach.error.as_mut()),
        Performative::End(end) => tame_error(end.error.as_mut()),
        Performative::Close(close) => tame_error(close.error.as_mut()),
        Performative::Attach(attach) => {
            tame_map(&mut attach.properties);
            attach.unsettled = Value::Null;
            attach.source.iter_mut().for_each(tame_source);
            match &mut attach.target {
                Some(Target::Node(node)) => {
                    let Node { durable, expiry_policy, dynamic_node_properties, .. } = &mut **node;
                    tame_terminus(durable, expiry_policy, dynamic_node_properties);
                }
                target => *target = None,
            }
        }
    }
    performative
}

// ---- there and back -------------------------------------------------------------------------------------------

fn through<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Vec<u8> {
    let theirs: T = serde_amqp::from_slice(bytes).expect("they read what we write");
    serde_amqp::to_vec(&theirs).expect("they write what they read")
}

proptest! {
    #[test]
    fn what_we_write_they_read_and_what_they_write_we_read(performative in performative()) {
        let ours = tame(performative);
        let bytes = encoded(&ours);
        let theirs = match &ours {
            Performative::Open(_) => through::<theirs::Open>(&bytes),
            Performative::Begin(_) => through::<theirs::Begin>(&bytes),
            Performative::Attach(_) => through::<theirs::Attach>(&bytes),
            Performative::Flow(_) => through::<theirs::Flow>(&bytes),
            Performative::Transfer(_) => through::<theirs::Transfer>(&bytes),
            Performative::Disposition(_) => through::<theirs::Disposition>(&bytes),
            Performative::Detach(_) => through::<theirs::Detach>(&bytes),
            Performative::End(_) => through::<theirs::End>(&bytes),
            Performative::Close(_) => through::<theirs::Close>(&bytes),
        };
        let (read, rest) = Performative::decode(&theirs.into()).expect("we read what they write");
        prop_assert_eq!(read, ours);
        prop_assert!(rest.is_empty());
    }
}

// ---- field by field -------------------------------------------------------------------------------------------

#[test]
fn a_transfer_has_the_same_fields_there() {
    let ours = Transfer {
        delivery_id: Some(300),
        delivery_tag: DeliveryTag::new(b"tag"),
        message_format: Some(0x8001_3700),
        settled: Some(true),
        more: true,
        ..Transfer::part(2)
    };
    let theirs = theirs::Transfer {
        handle: 2.into(),
        delivery_id: Some(300),
        delivery_tag: Some(b"tag".to_vec().into()),
        message_format: Some(0x8001_3700),
        settled: Some(true),
        more: true,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    };
    assert_eq!(serde_amqp::from_slice::<theirs::Transfer>(&encoded(&ours.into())).unwrap(), theirs);
}

#[test]
fn a_rejection_has_the_same_fields_there() {
    let ours = Disposition {
        role: Role::Receiver,
        first: 3,
        last: Some(9),
        settled: true,
        state: Some(DeliveryState::rejected(Error::new(condition::NOT_FOUND, "no"))),
        batchable: false,
    };
    let error = theirs_definitions::Error {
        condition: ErrorCondition::AmqpError(AmqpError::NotFound),
        description: Some("no".into()),
        info: None,
    };
    let rejected = theirs_messaging::Rejected { error: Some(error) };
    let theirs = theirs::Disposition {
        role: theirs_definitions::Role::Receiver,
        first: 3,
        last: Some(9),
        settled: true,
        state: Some(theirs_messaging::DeliveryState::Rejected(rejected)),
        batchable: false,
    };
    assert_eq!(serde_amqp::from_slice::<theirs::Disposition>(&encoded(&ours.into())).unwrap(), theirs);
}

#[test]
fn an_open_has_the_same_fields_there() {
    let ours = Open {
        hostname: Some("localhost".into()),
        max_frame_size: 65_536,
        channel_max: 4_999,
        idle_timeout_ms: Some(120_000),
        ..Open::new(Arc::from("hub"))
    };
    let theirs = theirs::Open {
        container_id: "hub".into(),
        hostname: Some("localhost".into()),
        max_frame_size: 65_536.into(),
        channel_max: 4_999.into(),
        idle_time_out: Some(120_000),
        outgoing_locales: None,
        incoming_locales: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    };
    assert_eq!(serde_amqp::from_slice::<theirs::Open>(&encoded(&ours.into())).unwrap(), theirs);
}
