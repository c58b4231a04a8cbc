package main

import (
	"fmt"
	"strings"

	"kferry/pipeline"
)

// showACLs writes grants as commands of Kafka's own tool, to be run by who administers the clusters.
func showACLs(cfg pipeline.Config) string {
	var b strings.Builder
	before := ""
	for _, g := range cfg.Grants() {
		if g.Cluster != before {
			before = g.Cluster
			fmt.Fprintf(&b, "# on %s, with --command-config FILE where the tool has to log in\n", g.Cluster)
		}
		fmt.Fprintf(&b, "kafka-acls.sh --bootstrap-server %s --add --allow-principal %s", quote(strings.Join(cfg.Clusters[g.Cluster].Bootstrap, ",")), quote(g.Principal))
		for _, op := range g.Operations {
			fmt.Fprintf(&b, " --operation %s", op)
		}
		switch {
		case g.Topic == "":
			b.WriteString(" --cluster")
		case g.Prefixed:
			fmt.Fprintf(&b, " --topic %s --resource-pattern-type prefixed", quote(g.Topic))
		default:
			fmt.Fprintf(&b, " --topic %s", quote(g.Topic))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// quote makes a text one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
