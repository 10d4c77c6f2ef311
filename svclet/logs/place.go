package logs

import (
	"io/fs"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
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

// uidOf returns the UID of the pod whose logs a directory has by its name,
// NAMESPACE_NAME_UID; empty for other names.
func uidOf(directory string) types.UID {
	parts := strings.Split(directory, "_")
	if len(parts) != 3 || len(validation.IsDNS1123Label(parts[0])) > 0 || len(validation.IsDNS1123Subdomain(parts[1])) > 0 {
		return ""
	}
	return types.UID(parts[2])
}

// generatedUIDOf is uidOf of a directory that only an agent names so: one of a UID that the API
// server or an agent has generated. What others have in the directory of logs is not an agent's
// to remove.
func generatedUIDOf(directory fs.DirEntry) types.UID {
	uid := uidOf(directory.Name())
	if !directory.IsDir() || uuid.Validate(string(uid)) != nil {
		return ""
	}
	return uid
}
