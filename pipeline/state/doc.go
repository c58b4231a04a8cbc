// Package state keeps what a link has to remember in one compacted topic on
// the target cluster: kferry-state.<source alias>.internal.
//
// The topic has [Shards] partitions, fixed at creation; only
// cleanup.policy=compact is set, and the replication factor is the target's
// default. Every record is JSON, key and value, so that the console consumer
// shows it:
//
//	kind        key fields after "kind"                             value fields after "v"
//	cluster     cluster                                             alias
//	link        link, cluster                                       first_start, include, exclude, naming, start
//	producer    link, cluster, residue                              pid
//	start       link, cluster, topic, topic_id, partition           src_start, dst_start, how, at
//	checkpoint  link, cluster, topic, topic_id, partition, epoch    src_next, seq_next, dst_next, pid, leader_epoch, clean, shared, at
//
// "cluster" is the source's cluster id, "topic" the source's name, "topic_id"
// Kafka's text form of its id (left out where the source has none). So a
// changed alias finds its own records, and a rebuilt cluster or a recreated
// topic starts clean.
//
// A lane's records lie in partition [Shard](topic, partition): whoever owns
// that state partition owns the lane. Records that all share (cluster, link,
// producer) lie in partition 0.
//
// A reader takes the checkpoint of the highest epoch, and of one epoch the
// later record. So a zombie's late write is older, never wrong.
//
// Unknown kinds and unknown fields are passed over, so that an older kferry can
// read a newer one's topic as far as it understands it. A known kind in a newer
// version is an error, never a silent fresh start.
package state
