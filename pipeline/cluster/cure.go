package cluster

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// cures says for a parked lane what an operator can change, by code.
var cures = map[int16]string{
	kerr.MessageTooLarge.Code:                    "raise max.message.bytes of the target topic to the source topic's value",
	kerr.RecordListTooLarge.Code:                 "raise segment.bytes of the target topic above its largest batch",
	kerr.InvalidTimestamp.Code:                   "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target topic (before Kafka 3.6: message.timestamp.difference.max.ms)",
	kerr.InvalidRecord.Code:                      "the target refuses this batch: a record without a key needs cleanup.policy without compact on the target topic, an old timestamp a higher message.timestamp.before.max.ms",
	kerr.CorruptMessage.Code:                     "the batch does not match its checksum: compare it on the source's replicas (kafka-dump-log --deep-iteration) and move the leader to a healthy one",
	kerr.UnsupportedCompressionType.Code:         "the target does not know the batch's codec: upgrade the target (zstd needs Kafka 2.1), or compress with another codec on the source",
	kerr.UnsupportedForMessageFormat.Code:        "raise log.message.format.version (message.format.version of the topic) to 0.11 or newer",
	kerr.UnknownTopicID.Code:                     "the topic was deleted, or made anew under the same name: a new topic is a new log, so decide where to begin",
	kerr.InconsistentTopicID.Code:                "the topic was made anew under the same name: a new topic is a new log, so decide where to begin",
	kerr.TopicAuthorizationFailed.Code:           "grant READ and DESCRIBE on the source topic, WRITE, DESCRIBE and CREATE on the target topic",
	kerr.TransactionalIDAuthorizationFailed.Code: "the batch still carries the transactional mark, which is an error in kferry: report it",
	kerr.GroupAuthorizationFailed.Code:           "grant READ on the group",
	kerr.InvalidTopicException.Code:              "the target does not take this topic name: rename it with naming: {rename: ...} or leave it out",
	kerr.PolicyViolation.Code:                    "the target's create.topic.policy or alter.config.policy forbids it: make the topic by hand, or change the policy",
	kerr.InvalidReplicationFactor.Code:           "the target has fewer brokers than its default.replication.factor: add brokers or lower the setting",
	kerr.InvalidConfig.Code:                      "the target does not take one of the source topic's settings: make the topic by hand without it",
	kerr.OffsetOutOfRange.Code:                   "the position is outside the source's log: retention has passed it, or the log was cut",
	kerr.UnsupportedVersion.Code:                 "the broker is too old for this request: upgrade it",
}

// Cure returns the sentence that stands beside a parked lane: the broker setting to change, or who can help. Every code has one.
func Cure(code int16) string {
	if cure, ok := cures[code]; ok {
		return cure
	}
	return fmt.Sprintf("look for %s in the broker's log", CodeName(code))
}
