package partitioner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// NamingKind is how a link calls its topics on the target.
type NamingKind string

const (
	Prefix   NamingKind = "prefix"   // <source alias><separator><topic>: MirrorMaker 2's DefaultReplicationPolicy
	Identity NamingKind = "identity" // the same name
	Rename   NamingKind = "rename"   // by the map; a topic that is not in it keeps its name
)

// NamingConfig is a link's naming.
type NamingConfig struct {
	Kind   NamingKind
	Rename map[string]string // source topic → target topic, for Rename
}

// TopicChars is the longest topic name a broker takes (org.apache.kafka.common.internals.Topic).
const TopicChars = 249

var topicShape = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// CheckTopic says what a broker would have against a topic's name.
func CheckTopic(topic string) error {
	switch {
	case topic == "":
		return fmt.Errorf("a topic name cannot be empty")
	case topic == "." || topic == "..":
		return fmt.Errorf("a topic cannot be called %q", topic)
	case len(topic) > TopicChars:
		return fmt.Errorf("topic name %q has %d characters, Kafka takes %d", topic, len(topic), TopicChars)
	case !topicShape.MatchString(topic):
		return fmt.Errorf("topic name %q has a character other than letters, digits, '.', '_' and '-'", topic)
	}
	return nil
}

// UpstreamChain lists the clusters a topic's name says it came through, nearest first: "b.a.orders" is b, a. Only known
// aliases count, so an application's "eu.orders" is not mistaken for a copy. Where two aliases fit, the longer one counts.
func UpstreamChain(topic, separator string, aliases []string) []string {
	var chain []string
	for {
		nearest := ""
		for _, alias := range aliases {
			rest, ok := strings.CutPrefix(topic, alias+separator)
			if ok && rest != "" && len(alias) > len(nearest) {
				nearest = alias
			}
		}
		if nearest == "" {
			return chain
		}
		chain = append(chain, nearest)
		topic = topic[len(nearest)+len(separator):]
	}
}

// Namer gives the target's name of a source topic and back. It is immutable and safe for concurrent use.
type Namer struct {
	cfg               NamingConfig
	source, target    string // aliases
	separator         string
	aliases           []string          // all known ones
	renamed, original map[string]string // the map, both ways
}

// NewNamer takes the aliases of the link's two clusters and all aliases that may appear in a topic's name. It does not
// check; LinkConfig.Validate does.
func NewNamer(cfg NamingConfig, source, target, separator string, aliases []string) *Namer {
	n := &Namer{cfg: cfg, source: source, target: target, separator: separator, aliases: slices.Clone(aliases),
		renamed: map[string]string{}, original: map[string]string{}}
	if cfg.Kind == Rename {
		for from, to := range cfg.Rename {
			n.renamed[from], n.original[to] = to, from
		}
	}
	return n
}

// Target gives the name of a source topic on the target. It is false where the topic is not to be forwarded; Refusal says why.
func (n *Namer) Target(topic string) (string, bool) {
	target, refusal := n.name(topic)
	return target, refusal == ""
}

// Refusal is the reason why a topic is not forwarded, and empty for one that is.
func (n *Namer) Refusal(topic string) string {
	_, refusal := n.name(topic)
	return refusal
}

// Loops says whether a topic is not forwarded because it has been on the target: that is as it should be. Every other refusal
// is a topic that the user asked for and does not get.
func (n *Namer) Loops(topic string) bool {
	return n.cfg.Kind == Prefix && slices.Contains(UpstreamChain(topic, n.separator, n.aliases), n.target)
}

// name is Target and Refusal in one. By prefix, a topic that has been on the target already is not sent there again
// (MirrorSourceConnector.isCycle). Other namings leave no trace of where a topic was; Overlap guards those.
func (n *Namer) name(topic string) (target, refusal string) {
	target = topic
	switch n.cfg.Kind {
	case Prefix:
		if n.Loops(topic) {
			return "", fmt.Sprintf("topic %q came from cluster %s", topic, n.target)
		}
		target = n.source + n.separator + topic
	case Rename:
		if to, ok := n.renamed[topic]; ok {
			target = to
		} else if from, ok := n.original[topic]; ok {
			return "", fmt.Sprintf("topic %q would share its name on the target with %q, which is renamed to it", topic, from)
		}
	}
	if err := CheckTopic(target); err != nil {
		return "", err.Error()
	}
	return target, ""
}

// Source gives the source topic that a target topic is, or would be, the copy of. It is false for a name this link never writes.
func (n *Namer) Source(target string) (string, bool) {
	topic := target
	switch n.cfg.Kind {
	case Prefix:
		rest, ok := strings.CutPrefix(target, n.source+n.separator)
		if !ok {
			return "", false
		}
		topic = rest
	case Rename:
		if from, ok := n.original[target]; ok {
			topic = from
		}
	}
	back, ok := n.Target(topic)
	return topic, ok && back == target && topic != ""
}
