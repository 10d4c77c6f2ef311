package nodeconfig

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// oldestMinors is how many minor releases an agent may be older than its API server
// (Kubernetes' version skew policy).
const oldestMinors = 3

// Skew returns why the release of an agent does not fit that of its API server, or "".
// Versions are as the two report them ("v1.28.0").
func Skew(agent, server string) string {
	own, err := version.ParseSemantic(agent)
	if err != nil {
		return fmt.Sprintf("the agent's version %q is not a release", agent)
	}
	theirs, err := version.ParseSemantic(server)
	if err != nil {
		return fmt.Sprintf("the API server's version %q is not a release", server)
	}
	switch {
	case own.Major() != theirs.Major():
		return fmt.Sprintf("the agent is of release %d, the API server of release %d", own.Major(), theirs.Major())
	case own.Minor() > theirs.Minor():
		return fmt.Sprintf("the agent follows release 1.%d and must not be newer than the API server, of release 1.%d", own.Minor(), theirs.Minor())
	case own.Minor()+oldestMinors < theirs.Minor():
		return fmt.Sprintf("the agent follows release 1.%d and must not be more than %d minor releases older than the API server, of release 1.%d", own.Minor(), oldestMinors, theirs.Minor())
	}
	return ""
}
