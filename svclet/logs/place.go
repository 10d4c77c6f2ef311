package logs

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Container is one whose log it is.
type Container struct {
	// ID is the runtime's.
	ID                          string
	PodNamespace, PodName, Name string
	// Path of its log, whose directory is its own.
	Path string
}

const (
	linkSuffix = ".log"
	// maxFileName is that of Linux's file systems.
	maxFileName = 255
)

// link is the name of the link to a container's log. Collectors of logs read
// from it whose log it is.
func (c Container) link() string {
	name := c.PodName + "_" + c.PodNamespace + "_" + c.Name + "-" + c.ID
	return name[:min(len(name), maxFileName-len(linkSuffix))] + linkSuffix
}

// uidOf is the UID of the pod whose directory of logs, NAMESPACE_NAME_UID, has
// this name.
func uidOf(directory string) types.UID {
	return types.UID(directory[strings.LastIndex(directory, "_")+1:])
}
