// Package source reads a cluster's logs for the lanes of all links that read it under one isolation.
//
// A lane holds a cursor: a place in one partition, asking or holding. Cursors of one partition at one place form a feed, which is
// read once for all of them. Feeds are read by fetchers; each fetcher is one connection to one broker with one fetch session
// (KIP-227), strictly request and answer. A broker has some fetchers for partitions with a backlog and one for quiet partitions,
// which may wait at the broker: a broker serves a connection's requests one by one, so a wait would hold up all that is behind it.
// A session holds a partition once, so feeds of a partition at different places are with different fetchers.
//
// What a response holds is one counted buffer; each lane gets views into it. The bytes are read-only from there on.
//
// Memory: before a fetch the bytes that it may bring are reserved from the process's credit; the buffer gives them back when
// its last view is released, by whichever lane. No credit, no fetch.
package source
