//! Messages of the node-to-node protocol, written and read by the crate that defined it.
//!
//! `cluster-vectors write` prints one JSON object per line: what the message is (`kind`), a name
//! for people, the value in serde's JSON form, and the bytes in hex.
//! `cluster-vectors read` takes lines of `kind hex` and prints, for each, the value as JSON with
//! the bytes that it encodes to again, or the reason why it is refused.

mod commands;
mod exchange;

use rivven_cluster::metadata::MetadataCommand;
use rivven_cluster::protocol::{
    decode_request, decode_response, frame_message, Acks, ClusterRequest, ClusterResponse,
    ErrorCode, RequestHeader, ResponseHeader, MAX_MESSAGE_SIZE, PROTOCOL_VERSION,
};
use serde::{de::DeserializeOwned, Serialize};
use std::io::BufRead;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("write") => write(),
        Some("read") => read(),
        _ => {
            eprintln!("usage: cluster-vectors write | read");
            std::process::exit(2);
        }
    }
}

fn write() {
    println!(
        "{{\"kind\":\"limits\",\"version\":{PROTOCOL_VERSION},\"message_bytes_max\":{MAX_MESSAGE_SIZE}}}"
    );
    for code in ERROR_CODES {
        println!(
            "{{\"kind\":\"error_code\",\"name\":\"{code:?}\",\"value\":{},\"is_retriable\":{}}}",
            code as u16,
            code.is_retriable()
        );
    }
    for acks in [Acks::None, Acks::Leader, Acks::All] {
        let name = format!("{acks:?} is {} in Kafka", acks.to_i8());
        vector("acks", &name, &acks);
    }
    let frame = frame_message(b"hello world");
    println!(
        "{{\"kind\":\"frame\",\"name\":\"hello world\",\"hex\":\"{}\"}}",
        hex(&frame)
    );
    exchange::request_headers(vector::<RequestHeader>);
    exchange::response_headers(vector::<ResponseHeader>);
    commands::commands(vector::<MetadataCommand>);
    exchange::requests(vector::<ClusterRequest>);
    exchange::responses(vector::<ClusterResponse>);
}

fn vector<T: Serialize>(kind: &str, name: &str, value: &T) {
    let json = serde_json::to_string(value).expect("a value has a JSON form");
    let bytes = postcard::to_allocvec(value).expect("a value has a postcard form");
    let hex = hex(&bytes);
    println!("{{\"kind\":\"{kind}\",\"name\":\"{name}\",\"hex\":\"{hex}\",\"value\":{json}}}");
}

fn read() {
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("input is text");
        let (kind, digits) = line.split_once(' ').expect("a line is `kind hex`");
        let bytes = unhex(digits);
        let told = match kind {
            "request" => decode_request(&bytes).map_err(|e| e.to_string()).map(told),
            "response" => decode_response(&bytes).map_err(|e| e.to_string()).map(told),
            "command" => told_if::<MetadataCommand>(&bytes),
            "request_header" => told_if::<RequestHeader>(&bytes),
            "response_header" => told_if::<ResponseHeader>(&bytes),
            "acks" => told_if::<Acks>(&bytes),
            _ => Err(format!("no such kind: {kind}")),
        };
        match told {
            Ok(json) => println!("{json}"),
            Err(reason) => println!("{}", serde_json::json!({ "refused": reason })),
        }
    }
}

fn told_if<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<String, String> {
    postcard::from_bytes::<T>(bytes)
        .map_err(|e| e.to_string())
        .map(told)
}

fn told<T: Serialize>(value: T) -> String {
    let json = serde_json::to_string(&value).expect("a value has a JSON form");
    let bytes = postcard::to_allocvec(&value).expect("a value has a postcard form");
    format!("{{\"hex\":\"{}\",\"value\":{json}}}", hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits"))
        .collect()
}

const ERROR_CODES: [ErrorCode; 21] = [
    ErrorCode::None,
    ErrorCode::Unknown,
    ErrorCode::CorruptMessage,
    ErrorCode::UnknownTopic,
    ErrorCode::InvalidPartition,
    ErrorCode::LeaderNotAvailable,
    ErrorCode::NotLeaderForPartition,
    ErrorCode::RequestTimedOut,
    ErrorCode::NotEnoughReplicas,
    ErrorCode::NotEnoughReplicasAfterAppend,
    ErrorCode::InvalidRequiredAcks,
    ErrorCode::NotController,
    ErrorCode::InvalidRequest,
    ErrorCode::UnsupportedVersion,
    ErrorCode::TopicAlreadyExists,
    ErrorCode::InvalidReplicationFactor,
    ErrorCode::IneligibleReplica,
    ErrorCode::OffsetOutOfRange,
    ErrorCode::NotReplicaForPartition,
    ErrorCode::GroupAuthorizationFailed,
    ErrorCode::UnknownMemberId,
];
