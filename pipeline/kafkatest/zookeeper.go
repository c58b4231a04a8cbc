package kafkatest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// zooKeeper keeps the cluster of brokers that have no controller of their own yet. It is one process, from the brokers' jars.
type zooKeeper struct {
	dir     string
	addr    string
	process *Process
}

// usesZooKeeper tells whether a version is run with ZooKeeper: 2.8's KRaft was a preview. From 3.7 on all run as KRaft.
func usesZooKeeper(version string) bool { return version[0] < '3' }

func (z *zooKeeper) launch(version, classPath string) error {
	_, port, err := net.SplitHostPort(z.addr)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(z.dir, 0o755); err != nil {
		return err
	}
	path := func(name string) string { return filepath.Join(z.dir, name) }
	if err := writeProperties(path("zoo.properties"), map[string]string{
		"tickTime":           "500", // half of the shortest session
		"dataDir":            path("data"),
		"clientPort":         port,
		"clientPortAddress":  "127.0.0.1",
		"admin.enableServer": "false", // it would take port 8080
		"maxClientCnxns":     "0",
	}); err != nil {
		return err
	}
	if err := os.WriteFile(path("logging.properties"), []byte(logging(version, "WARN", stdout)), 0o644); err != nil {
		return err
	}
	z.process, err = StartProcess(Command{
		Name: "java",
		Args: []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", loggingFlag(version, path("logging.properties")),
			"-cp", classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path("zoo.properties")},
		Dir: z.dir,
		Log: path("zookeeper.log"),
	})
	if err != nil {
		return fmt.Errorf("start ZooKeeper: %w", err)
	}
	return nil
}
