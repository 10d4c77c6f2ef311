// Package apis lists the kinds that svc serves and makes the runtime.Scheme for
// them.
package apis

import (
	"svc.dev/svc/apis/admissionregistration"
	"svc.dev/svc/apis/apps"
	"svc.dev/svc/apis/authentication"
	"svc.dev/svc/apis/authorization"
	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apis/batch"
	"svc.dev/svc/apis/certificates"
	"svc.dev/svc/apis/coordination"
	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/devices"
	"svc.dev/svc/apis/discovery"
	"svc.dev/svc/apis/flowcontrol"
	"svc.dev/svc/apis/lifecycle"
	"svc.dev/svc/apis/metrics"
	"svc.dev/svc/apis/networking"
	"svc.dev/svc/apis/node"
	"svc.dev/svc/apis/policy"
	"svc.dev/svc/apis/rbac"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/scheduling"
	"svc.dev/svc/apis/storage"
	"svc.dev/svc/apis/storagemigration"
	"svc.dev/svc/apis/storageversion"
)

// Kinds returns all kinds, group by group in the order of discovery, which is
// that of kube-apiserver.
func Kinds() []*resource.Kind {
	var kinds []*resource.Kind
	for _, group := range [][]resource.Declaration{
		core.Kinds(),
		apps.Kinds(),
		authentication.Kinds(),
		authorization.Kinds(),
		autoscaling.Kinds(),
		batch.Kinds(),
		certificates.Kinds(),
		networking.Kinds(),
		policy.Kinds(),
		rbac.Kinds(),
		storage.Kinds(),
		admissionregistration.Kinds(),
		scheduling.Kinds(),
		coordination.Kinds(),
		node.Kinds(),
		discovery.Kinds(),
		flowcontrol.Kinds(),
		devices.Kinds(),
		storageversion.Kinds(),
		storagemigration.Kinds(),
		lifecycle.Kinds(),
		metrics.Kinds(),
	} {
		for _, d := range group {
			kinds = append(kinds, d.Kind())
		}
	}
	return kinds
}
