package e2e

import (
	"testing"

	"kferry/pipeline/kafkatest"
)

const (
	user        = "kferry"
	password    = "correct-horse"
	limitedUser = "limited" // has only the permissions that a test gives it
)

// doors are the certificates of secure.
var doors = &kafkatest.Security{User: user, Password: password}

// secure has all encrypted and authenticated listeners, and an authorizer that lets all but limitedUser do anything.
func secure(t *testing.T) *kafkatest.Kafka {
	return broker(t, "4.4 secure", kafkatest.Options{Version: "4.4.0", Security: doors, Authorizer: true,
		Config: map[string]string{"super.users": "User:ANONYMOUS;User:CN=client;User:" + user}})
}
