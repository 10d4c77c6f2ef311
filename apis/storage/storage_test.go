package storage

import (
	"fmt"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestStorageClass(t *testing.T) {
	resourcetest.Rules(t, storageClasses, `
metadata: {name: fast}
provisioner: example.com/disks
parameters: {kind: ssd}
allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [a, b]}]}]
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "the provisioner is required", Change: `provisioner: ""`, Want: []string{`provisioner: Required value`}},
		{Name: "parameters have keys", Change: `parameters: {"": x}`, Want: []string{`parameters: Invalid value: "": field can not be empty.`}},
		{Name: "policies and modes are known", Change: `{reclaimPolicy: Recycle, volumeBindingMode: Someday}`, Want: []string{
			`reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`,
			`volumeBindingMode: Unsupported value: "Someday": supported values: "Immediate", "WaitForFirstConsumer"`}},
		{Name: "what provisions is immutable", Update: true, Change: `{provisioner: example.com/other, parameters: {kind: hdd}, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer}`, Want: []string{
			`provisioner: Invalid value: "example.com/other": field is immutable`,
			`parameters: Invalid value: {"kind":"hdd"}: field is immutable`,
			`reclaimPolicy: Invalid value: "Retain": field is immutable`,
			`volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable`}},
		{Name: "expansion and topologies may change", Update: true, Change: `{allowVolumeExpansion: true, allowedTopologies: null}`},
		{Name: "topologies differ, whatever their order", Change: `allowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, b]}]}, {matchLabelExpressions: [{key: z, values: [b, a]}]}]`,
			Want: []string{`allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`}},
		{Name: "a topology has labels", Change: `allowedTopologies: [{}]`, Want: []string{`allowedTopologies[0].matchLabelExpressions: Duplicate value: ""`}},
		{Name: "a topology has keys once, and values", Change: `allowedTopologies: [{matchLabelExpressions: [{key: z, values: [a, a]}, {key: z, values: []}]}]`, Want: []string{
			`allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "a"`,
			`allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "z"`,
			`allowedTopologies[0].matchLabelExpressions[1].values: Required value`}},
	})
}

func TestVolumeAttributesClass(t *testing.T) {
	resourcetest.Rules(t, volumeAttributesClasses, `
metadata: {name: gold}
driverName: disks.example.com
parameters: {iops: "1000"}
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "a driver and parameters are required", Change: `{driverName: "", parameters: null}`, Want: []string{
			`driverName: Required value`, `parameters: Required value: must contain at least one key/value pair`}},
		{Name: "driver and parameters are immutable", Update: true, Change: `{driverName: other.example.com, parameters: {iops: "2"}}`, Want: []string{
			`driverName: Forbidden: updates to driverName are forbidden.`, `parameters: Forbidden: updates to parameters are forbidden.`}},
	})
}

func TestVolumeAttachment(t *testing.T) {
	resourcetest.Rules(t, volumeAttachments, `
metadata: {name: csi-1}
spec: {attacher: disks.example.com, nodeName: node-1, source: {persistentVolumeName: pv-1}}
`, []resourcetest.Rule{
		{Name: "an attachment is accepted"},
		{Name: "the attacher is required", Change: `spec: {attacher: ""}`, Want: []string{`spec.attacher: Required value`}},
		{Name: "there is one source", Change: `spec: {source: {persistentVolumeName: null}}`,
			Want: []string{`spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName`}},
		{Name: "an inline volume is of a driver", Change: `spec: {source: {persistentVolumeName: null, inlineVolumeSpec: {accessModes: [ReadWriteOnce], csi: {driver: disks.example.com, volumeHandle: a}}}}`},
		{Name: "an inline volume is validated as that of a persistent volume", Change: `spec: {source: {persistentVolumeName: null, inlineVolumeSpec: {csi: {nodePublishSecretRef: {name: a}}}}}`, Want: []string{
			`spec.source.inlineVolumeSpec.accessModes: Required value`, `spec.source.inlineVolumeSpec.csi.driver: Required value`,
			`spec.source.inlineVolumeSpec.csi.volumeHandle: Required value`, `spec.source.inlineVolumeSpec.csi.nodePublishSecretRef.namespace: Required value`}},
		{Name: "an inline volume has no field for binding", Change: `spec: {source: {persistentVolumeName: null, inlineVolumeSpec: {accessModes: [ReadWriteOnce], nfs: {server: a, path: /b},
			capacity: {storage: 1Gi}, claimRef: {name: a}, persistentVolumeReclaimPolicy: Delete, nodeAffinity: {}, storageClassName: a, volumeMode: Block}}}`, Want: []string{
			`spec.source.inlineVolumeSpec.claimRef: Forbidden: may not be specified in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.nodeAffinity: Forbidden: may not be specified in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.storageClassName: Forbidden: may not be specified in the context of inline volumes`,
			`spec.source.inlineVolumeSpec.volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes`}},
		{Name: "the spec is immutable", Update: true, Change: `spec: {nodeName: node-2}`, Want: []string{
			`spec: Invalid value: {"attacher":"disks.example.com","source":{"persistentVolumeName":"pv-1"},"nodeName":"node-2"}: field is immutable`}},
		{Name: "error codes are not negative", Status: true, Change: `status: {attached: false, attachError: {errorCode: -1}}`,
			Want: []string{`status.attachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive`}},
	})
}

func TestCSIDriver(t *testing.T) {
	resourcetest.Rules(t, csiDrivers, `
metadata: {name: disks.example.com}
spec: {tokenRequests: [{audience: a, expirationSeconds: 600}, {audience: ""}]}
`, []resourcetest.Rule{
		{Name: "a driver is accepted"},
		{Name: "audiences are unique and lives bounded", Change: `spec: {tokenRequests: [{audience: a, expirationSeconds: 599}, {audience: a}, {audience: b, expirationSeconds: 4294967297}]}`, Want: []string{
			`spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`,
			`spec.tokenRequests[1].audience: Duplicate value: "a"`,
			`spec.tokenRequests[2].expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`}},
		{Name: "policies and modes are known", Change: `spec: {fsGroupPolicy: Some, volumeLifecycleModes: [Eternal]}`, Want: []string{
			`spec.fsGroupPolicy: Unsupported value: "Some": supported values: "File", "None", "ReadWriteOnceWithFSType"`,
			`spec.volumeLifecycleModes: Unsupported value: "Eternal": supported values: "Persistent", "Ephemeral"`}},
		{Name: "attaching and modes are immutable", Update: true, Change: `spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}`, Want: []string{
			`spec.attachRequired: Invalid value: false: field is immutable`,
			`spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable`}},
		{Name: "the rest may change", Update: true, Change: `spec: {podInfoOnMount: true, tokenRequests: null}`},
	})
}

func TestCSINode(t *testing.T) {
	resourcetest.Rules(t, csiNodes, `
metadata: {name: node-1}
spec: {drivers: [{name: disks.example.com, nodeID: n1, topologyKeys: [zone], allocatable: {count: 8}}]}
`, []resourcetest.Rule{
		{Name: "a node's drivers are accepted"},
		{Name: "a driver has a name and an ID, once", Change: `spec: {drivers: [{name: "", nodeID: ""}, {name: a, nodeID: n}, {name: a, nodeID: n}]}`, Want: []string{
			`spec.drivers[0].name: Required value`, `spec.drivers[0].nodeID: Required value`, `spec.drivers[2].name: Duplicate value: "a"`}},
		{Name: "a driver's name has at most 63 characters", Change: `spec: {drivers: [{name: a23456789.b23456789.c23456789.d23456789.e23456789.f23456789.g234, nodeID: n}]}`,
			Want: []string{`spec.drivers[0].name: Too long: may not be more than 63 bytes`}},
		{Name: "a driver that stays is immutable", Update: true, Change: `spec: {drivers: [{name: disks.example.com, nodeID: n2, topologyKeys: [zone], allocatable: {count: 8}}]}`, Want: []string{
			`spec.drivers: Invalid value: {"name":"disks.example.com","nodeID":"n2","topologyKeys":["zone"]}: field is immutable`}},
		{Name: "what a driver can attach may change", Update: true, Change: `spec: {drivers: [{name: disks.example.com, nodeID: n1, topologyKeys: [zone], allocatable: {count: 4}}]}`},
		{Name: "a driver may go", Update: true, Change: `spec: {drivers: []}`},
		{Name: "a driver reports the health of its storage", Status: true,
			Change: `status: {storageHealth: [{name: disks.example.com, healthConditions: [{status: StorageDegraded, reason: Slow, accessMode: ReadOnlyMany, volumeMode: Block}]}]}`},
		{Name: "a report is of a driver, once", Status: true, Change: `status: {storageHealth: [{name: ""}, {name: a}, {name: a}]}`, Want: []string{
			`status.storageHealth[0].name: Required value`, `status.storageHealth[2]: Duplicate value: "a"`}},
		{Name: "a condition has a known status, access and volume mode, and a reason", Status: true, Change: `status: {storageHealth: [{name: a, healthConditions: [
			{status: Fine, reason: "", accessMode: Any, volumeMode: Tape}, {status: StorageUnreachable, reason: "not a reason"}]}]}`, Want: []string{
			`status.storageHealth[0].healthConditions[0].status: Unsupported value: "Fine": supported values: "StorageDegraded", "StorageUnreachable"`,
			`status.storageHealth[0].healthConditions[0].reason: Required value`,
			`status.storageHealth[0].healthConditions[0].accessMode: Unsupported value: "Any": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
			`status.storageHealth[0].healthConditions[0].volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`,
			`status.storageHealth[0].healthConditions[1].reason: Invalid value: "not a reason": a condition reason must start with alphabetic character, ` +
				`optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' ` +
				`(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')`}},
		{Name: "reason and message are short", Status: true, Change: fmt.Sprintf(`status: {storageHealth: [{name: a, healthConditions: [{status: StorageDegraded, reason: A%0256d, message: "%01025d"}]}]}`, 1, 1), Want: []string{
			`status.storageHealth[0].healthConditions[0].reason: Too long: may not be more than 256 bytes`,
			`status.storageHealth[0].healthConditions[0].message: Too long: may not be more than 1024 bytes`}},
		{Name: "a driver reports at most 16 conditions", Status: true, Change: `status: {storageHealth: [{name: a, healthConditions: [` + strings.Repeat(`{status: StorageDegraded, reason: A},`, 17) + `]}]}`,
			Want: []string{`status.storageHealth[0].healthConditions: Too many: 17: must have at most 16 items`}},
	})
}

func TestCSIStorageCapacity(t *testing.T) {
	resourcetest.Rules(t, csiStorageCapacities, `
metadata: {name: csisc-1, namespace: default}
storageClassName: fast
nodeTopology: {matchLabels: {zone: a}}
capacity: 100Gi
`, []resourcetest.Rule{
		{Name: "a capacity is accepted"},
		{Name: "a capacity is not negative", Change: `capacity: "-1"`, Want: []string{`capacity: Invalid value: "-1": must be greater than or equal to 0`}},
		{Name: "class and topology are immutable", Update: true, Change: `{storageClassName: slow, nodeTopology: {matchLabels: {zone: b}}}`, Want: []string{
			`storageClassName: Invalid value: "slow": field is immutable`,
			`nodeTopology: Invalid value: {"matchLabels":{"zone":"b"}}: field is immutable`}},
	})
}

func TestADriversGenerationCountsItsChanges(t *testing.T) {
	old := &storagev1.CSIDriver{}
	for change, want := range map[string]int64{"labels": 0, "spec": 1} {
		d := old.DeepCopy()
		if change == "labels" {
			d.Labels = map[string]string{"a": "b"}
		} else {
			d.Spec.RequiresRepublish = ptr.To(true)
		}
		if csiDrivers.PrepareUpdate(t.Context(), nil, d, old); d.Generation != want {
			t.Errorf("after a change of the %s it is %d, want %d", change, d.Generation, want)
		}
	}
}
