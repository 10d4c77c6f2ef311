package decision

import (
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// parseDriver reads: name [required]: a driver whose reports of capacity count.
func parseDriver(line string) *storagev1.CSIDriver {
	name, words := fields(line)
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}
	for _, word := range words {
		switch word {
		case "required":
			d.Spec.PreventPodSchedulingIfMissing = ptr.To(true)
		default:
			panic("unknown word " + word)
		}
	}
	return d
}

// parseLimits reads: node [driver=count or driver]...
func parseLimits(line string) *storagev1.CSINode {
	name, words := fields(line)
	n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, word := range words {
		name, count, limited := strings.Cut(word, "=")
		driver := storagev1.CSINodeDriver{Name: name}
		if limited {
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: ptr.To(int32(must(strconv.Atoi(count))))}
		}
		n.Spec.Drivers = append(n.Spec.Drivers, driver)
	}
	return n
}

// parseAttachment reads: name on=node volume=name csi=driver.
func parseAttachment(line string) *storagev1.VolumeAttachment {
	name, words := fields(line)
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "on":
			a.Spec.NodeName = value
		case "volume":
			a.Spec.Source.PersistentVolumeName = &value
		case "csi":
			a.Spec.Attacher = value
		default:
			panic("unknown word " + word)
		}
	}
	return a
}
