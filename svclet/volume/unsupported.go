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
		return fmt.Errorf("no volume plugin matched: svclet does not mount volumes of type %s: %s", name, replacement(name))
	}
}

// unsupportedVolume returns the error for a claim that is bound to such a volume.
func unsupportedVolume(pv *corev1.PersistentVolume) error {
	name := sourceName(&pv.Spec.PersistentVolumeSource)
	return fmt.Errorf("no volume plugin matched: PersistentVolume %s is of type %s, which svclet does not mount: %s", pv.Name, name, replacement(name))
}

// replacement returns what to use in place of a type of volumes.
func replacement(name string) string {
	driver := map[string]string{
		"awsElasticBlockStore": "ebs.csi.aws.com", "azureDisk": "disk.csi.azure.com", "azureFile": "file.csi.azure.com",
		"cephfs": "cephfs.csi.ceph.com", "cinder": "cinder.csi.openstack.org", "gcePersistentDisk": "pd.csi.storage.gke.io",
		"iscsi": "iscsi.csi.k8s.io", "portworxVolume": "pxd.portworx.com", "rbd": "rbd.csi.ceph.com",
		"scaleIO": "csi-vxflexos.dellemc.com", "storageos": "csi.storageos.com", "vsphereVolume": "csi.vsphere.vmware.com",
	}[name]
	switch {
	case driver != "":
		return "use a volume of type csi of the driver " + driver
	case name == "gitRepo":
		return "clone the repository in an init container, into a volume of type emptyDir"
	case name == "ephemeral" || name == "csi":
		return "it needs an API server"
	}
	return "use a volume of type csi of the vendor's driver, or mount it on the node and use a PersistentVolume of type local"
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
