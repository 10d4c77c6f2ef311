package volume

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unsupported returns the error for a volume of a type that svclet does not
// support.
func unsupported(source *corev1.VolumeSource) error {
	switch name := sourceName(source); name {
	case "":
		return errors.New("no volume plugin matched: the volume has no source that svclet knows")
	case "image":
		return errors.New("volumes of type image need a container runtime that mounts images")
	default:
		return fmt.Errorf("no volume plugin matched: svclet does not mount volumes of type %s: mount it on the node and use a hostPath, or a claim on a PersistentVolume of type local", name)
	}
}

// unsupportedVolume returns the error for a claim that is bound to such a volume.
func unsupportedVolume(pv *corev1.PersistentVolume) error {
	return fmt.Errorf("no volume plugin matched: PersistentVolume %s is of type %s: svclet mounts those of types local and hostPath", pv.Name, sourceName(&pv.Spec.PersistentVolumeSource))
}

// sourceName returns the name of the only field that is set in a union.
func sourceName(union any) string {
	value := reflect.ValueOf(union).Elem()
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
