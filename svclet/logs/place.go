package logs

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Container identifies the container of a log.
type Container struct {
	// ID is the runtime's ID.
	ID                          string
	PodNamespace, PodName, Name string
	// Path is the path of its log, whose directory is the container's own.
	Path string
}

const (
	linkSuffix = ".log"
	// maxFileName is the limit of Linux's file systems, in bytes.
	maxFileName = 255
)

// link returns the name of the link to a container's log, from which log
// collectors read the identity of the container.
func (c Container) link() string {
	name := c.PodName + "_" + c.PodNamespace + "_" + c.Name + "-" + c.ID
	return name[:min(len(name), maxFileName-len(linkSuffix))] + linkSuffix
}

// uidOf returns the UID of a pod from the name of its log directory,
// NAMESPACE_NAME_UID.
func uidOf(directory string) types.UID {
	return types.UID(directory[strings.LastIndex(directory, "_")+1:])
}
