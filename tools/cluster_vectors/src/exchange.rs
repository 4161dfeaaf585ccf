//! Requests, responses and their headers.

use rivven_cluster::metadata::MetadataCommand;
use rivven_cluster::partition::PartitionId;
use rivven_cluster::protocol::*;
use std::time::Duration;

pub fn request_headers(write: impl Fn(&str, &str, &RequestHeader)) {
    let write = |name: &str, header: &RequestHeader| write("request_header", name, header);
    write("usual", &header());
    write(
        "smallest",
        &RequestHeader {
            version: 0,
            correlation_id: 0,
            source: String::new(),
            timeout_ms: 0,
        },
    );
    write("largest", &largest_header());
    write(
        "a timeout of a minute",
        &header().with_timeout(Duration::from_secs(60)),
    );
}

pub fn response_headers(write: impl Fn(&str, &str, &ResponseHeader)) {
    let write = |name: &str, header: &ResponseHeader| write("response_header", name, header);
    write("success", &ResponseHeader::success(42));
    write("error", &ResponseHeader::error(42, 6, "not leader"));
    write(
        "error without words",
        &ResponseHeader {
            correlation_id: 1,
            error_code: 1,
            error_message: None,
        },
    );
    write("error with no text", &ResponseHeader::error(0, 127, ""));
    write(
        "largest",
        &ResponseHeader::error(u64::MAX, u16::MAX, "é漢😀".repeat(50)),
    );
}

pub fn requests(write: impl Fn(&str, &str, &ClusterRequest)) {
    use ClusterRequest::*;
    let write = |name: &str, request: ClusterRequest| write("request", name, &request);
    write(
        "all topics",
        FetchMetadata {
            header: header(),
            topics: None,
        },
    );
    write(
        "no topics",
        FetchMetadata {
            header: header(),
            topics: Some(vec![]),
        },
    );
    write(
        "one topic",
        FetchMetadata {
            header: header(),
            topics: Some(texts(&["test-topic"])),
        },
    );
    write(
        "a topic without a name",
        FetchMetadata {
            header: header(),
            topics: Some(texts(&[""])),
        },
    );
    let many = (0..300).map(|n| format!("topic-{n}")).collect();
    write(
        "many topics",
        FetchMetadata {
            header: largest_header(),
            topics: Some(many),
        },
    );
    write(
        "a proposal of nothing",
        ProposeMetadata {
            header: header(),
            command: MetadataCommand::Noop,
        },
    );
    let command = MetadataCommand::DeleteTopic {
        name: "orders".into(),
    };
    write(
        "a proposal",
        ProposeMetadata {
            header: header(),
            command,
        },
    );
    write(
        "fetch",
        Fetch {
            header: header(),
            partition: orders(),
            offset: 1000,
            max_bytes: 1 << 20,
        },
    );
    write(
        "smallest fetch",
        Fetch {
            header: header(),
            partition: PartitionId::new("", 0),
            offset: 0,
            max_bytes: 0,
        },
    );
    write(
        "largest fetch",
        Fetch {
            header: largest_header(),
            partition: largest(),
            offset: u64::MAX,
            max_bytes: u32::MAX,
        },
    );
    for acks in [Acks::None, Acks::Leader, Acks::All] {
        write(
            &format!("append for {acks:?}"),
            Append {
                header: header(),
                partition: orders(),
                records: b"abc".to_vec(),
                required_acks: acks,
            },
        );
    }
    write(
        "append nothing",
        Append {
            header: header(),
            partition: orders(),
            records: vec![],
            required_acks: Acks::All,
        },
    );
    let records = (0..1000u32).map(|n| n as u8).collect();
    write(
        "append much",
        Append {
            header: header(),
            partition: largest(),
            records,
            required_acks: Acks::Leader,
        },
    );
    write(
        "replica state",
        ReplicaState {
            header: header(),
            partition: orders(),
            log_end_offset: 10,
            high_watermark: 8,
        },
    );
    write(
        "largest replica state",
        ReplicaState {
            header: header(),
            partition: largest(),
            log_end_offset: u64::MAX,
            high_watermark: u64::MAX,
        },
    );
    write(
        "elect anyone",
        ElectLeader {
            header: header(),
            partition: orders(),
            preferred_leader: None,
        },
    );
    write(
        "elect one",
        ElectLeader {
            header: header(),
            partition: orders(),
            preferred_leader: Some("2".into()),
        },
    );
    write(
        "elect one without a name",
        ElectLeader {
            header: header(),
            partition: orders(),
            preferred_leader: Some(String::new()),
        },
    );
    write(
        "empty heartbeat",
        Heartbeat {
            header: header(),
            partitions: vec![],
        },
    );
    let beat = HeartbeatPartition {
        partition: orders(),
        leader_epoch: 5,
        high_watermark: 8,
    };
    write(
        "heartbeat",
        Heartbeat {
            header: header(),
            partitions: vec![beat],
        },
    );
    let beats = (0..200u32)
        .map(|n| HeartbeatPartition {
            partition: PartitionId::new("orders", n),
            leader_epoch: u64::MAX >> (n % 64),
            high_watermark: 1 << (n % 64),
        })
        .collect();
    write(
        "long heartbeat",
        Heartbeat {
            header: header(),
            partitions: beats,
        },
    );
}

pub fn responses(write: impl Fn(&str, &str, &ClusterResponse)) {
    use ClusterResponse::*;
    let write = |name: &str, response: ClusterResponse| write("response", name, &response);
    let ok = || ResponseHeader::success(42);
    write(
        "empty metadata",
        Metadata {
            header: ok(),
            cluster_id: "test-cluster".into(),
            controller_id: Some("node-1".into()),
            topics: vec![],
            brokers: vec![],
        },
    );
    write(
        "metadata of nobody",
        Metadata {
            header: ok(),
            cluster_id: String::new(),
            controller_id: None,
            topics: vec![],
            brokers: vec![],
        },
    );
    write(
        "metadata",
        Metadata {
            header: ok(),
            cluster_id: "c".into(),
            controller_id: Some("1".into()),
            topics: topics(3, 4),
            brokers: brokers(),
        },
    );
    write(
        "much metadata",
        Metadata {
            header: ok(),
            cluster_id: "c".into(),
            controller_id: Some("1".into()),
            topics: topics(2, 150),
            brokers: brokers(),
        },
    );
    write("metadata proposal", MetadataProposal { header: ok() });
    write(
        "refused proposal",
        MetadataProposal {
            header: ResponseHeader::error(42, 11, "node 2 leads"),
        },
    );
    write(
        "fetch",
        Fetch {
            header: ok(),
            partition: orders(),
            high_watermark: 9,
            log_start_offset: 0,
            records: b"xyz".to_vec(),
        },
    );
    write(
        "empty fetch",
        Fetch {
            header: ok(),
            partition: orders(),
            high_watermark: 0,
            log_start_offset: 0,
            records: vec![],
        },
    );
    write(
        "largest fetch",
        Fetch {
            header: ok(),
            partition: largest(),
            high_watermark: u64::MAX,
            log_start_offset: u64::MAX,
            records: vec![7; 16384],
        },
    );
    for time in [
        -1,
        0,
        1,
        63,
        64,
        -64,
        -65,
        1_700_000_000_000,
        i64::MIN,
        i64::MAX,
    ] {
        write(
            &format!("append at {time}"),
            Append {
                header: ok(),
                partition: orders(),
                base_offset: 7,
                log_append_time: time,
            },
        );
    }
    write(
        "in sync",
        ReplicaStateAck {
            header: ok(),
            partition: orders(),
            in_sync: true,
        },
    );
    write(
        "out of sync",
        ReplicaStateAck {
            header: ok(),
            partition: orders(),
            in_sync: false,
        },
    );
    write(
        "a leader",
        ElectLeader {
            header: ok(),
            partition: orders(),
            leader: Some("n2".into()),
            epoch: 6,
        },
    );
    write(
        "no leader",
        ElectLeader {
            header: ResponseHeader::error(42, 5, "nobody is in sync"),
            partition: orders(),
            leader: None,
            epoch: u64::MAX,
        },
    );
    write("heartbeat", Heartbeat { header: ok() });
    write(
        "error",
        Error {
            header: ResponseHeader::error(42, 6, "not leader"),
        },
    );
    write(
        "error without words",
        Error {
            header: ResponseHeader {
                correlation_id: u64::MAX,
                error_code: u16::MAX,
                error_message: None,
            },
        },
    );
}

fn topics(count: u32, partitions: u32) -> Vec<TopicMetadata> {
    (0..count)
        .map(|n| TopicMetadata {
            name: format!("topic-{n}"),
            partitions: (0..partitions * n).map(partition).collect(),
            is_internal: n == 1,
        })
        .collect()
}

fn partition(index: u32) -> PartitionMetadata {
    PartitionMetadata {
        partition_index: index,
        leader_id: if index % 2 == 0 {
            Some("1".into())
        } else {
            None
        },
        leader_epoch: u64::MAX >> (index % 64),
        replica_nodes: texts(&["1", "2", "2147483647"]),
        isr_nodes: texts(&["1"]),
        offline_replicas: vec![],
    }
}

fn brokers() -> Vec<BrokerMetadata> {
    vec![
        BrokerMetadata {
            node_id: "1".into(),
            host: "127.0.0.1".into(),
            port: 9092,
            rack: None,
        },
        BrokerMetadata {
            node_id: "2".into(),
            host: "::1".into(),
            port: u16::MAX,
            rack: Some("r".into()),
        },
        BrokerMetadata {
            node_id: String::new(),
            host: String::new(),
            port: 0,
            rack: Some(String::new()),
        },
    ]
}

fn header() -> RequestHeader {
    RequestHeader::new(42, "node-1".to_string())
}

fn largest_header() -> RequestHeader {
    RequestHeader {
        version: u16::MAX,
        correlation_id: u64::MAX,
        source: "n".repeat(300),
        timeout_ms: u32::MAX,
    }
}

fn orders() -> PartitionId {
    PartitionId::new("orders", 3)
}

fn largest() -> PartitionId {
    PartitionId::new("t".repeat(249), u32::MAX)
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|each| each.to_string()).collect()
}
