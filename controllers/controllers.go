// Package controllers runs the controllers: it elects a leader, and gives the
// controllers a shared cache and their clients. One folder has one controller, and
// All lists them.
package controllers

import (
	"sync"

	"svc.dev/svc/controllers/attachdetach"
	"svc.dev/svc/controllers/bootstrapsigner"
	"svc.dev/svc/controllers/certificates/csrapproving"
	"svc.dev/svc/controllers/certificates/csrcleaner"
	"svc.dev/svc/controllers/certificates/csrsigning"
	"svc.dev/svc/controllers/clusterroleaggregation"
	"svc.dev/svc/controllers/clustertrustbundlepublisher"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/cronjob"
	"svc.dev/svc/controllers/daemonset"
	"svc.dev/svc/controllers/deployment"
	"svc.dev/svc/controllers/devicetainteviction"
	"svc.dev/svc/controllers/disruption"
	"svc.dev/svc/controllers/endpoints"
	"svc.dev/svc/controllers/endpoints/endpointslice"
	"svc.dev/svc/controllers/endpoints/endpointslicemirroring"
	"svc.dev/svc/controllers/ephemeralvolume"
	"svc.dev/svc/controllers/garbagecollector"
	"svc.dev/svc/controllers/horizontalpodautoscaler"
	"svc.dev/svc/controllers/hostloadbalancer"
	"svc.dev/svc/controllers/job"
	"svc.dev/svc/controllers/legacytokencleaner"
	"svc.dev/svc/controllers/localpathprovisioner"
	"svc.dev/svc/controllers/namespace"
	"svc.dev/svc/controllers/nodeipam"
	"svc.dev/svc/controllers/nodelifecycle"
	"svc.dev/svc/controllers/persistentvolumebinder"
	"svc.dev/svc/controllers/persistentvolumeexpander"
	"svc.dev/svc/controllers/podcertificaterequestcleaner"
	"svc.dev/svc/controllers/podgc"
	"svc.dev/svc/controllers/podgroupprotection"
	"svc.dev/svc/controllers/pvcprotection"
	"svc.dev/svc/controllers/pvprotection"
	"svc.dev/svc/controllers/replicaset"
	"svc.dev/svc/controllers/resourceclaim"
	"svc.dev/svc/controllers/resourcepoolstatusrequest"
	"svc.dev/svc/controllers/resourcequota"
	"svc.dev/svc/controllers/rootcapublisher"
	"svc.dev/svc/controllers/scheduler"
	"svc.dev/svc/controllers/serviceaccount"
	"svc.dev/svc/controllers/serviceaccounttoken"
	"svc.dev/svc/controllers/servicecidr"
	"svc.dev/svc/controllers/statefulset"
	"svc.dev/svc/controllers/storageversionmigrator"
	"svc.dev/svc/controllers/tainteviction"
	"svc.dev/svc/controllers/tokencleaner"
	"svc.dev/svc/controllers/ttl"
	"svc.dev/svc/controllers/ttlafterfinished"
	"svc.dev/svc/controllers/vacprotection"
	"svc.dev/svc/controllers/validatingadmissionpolicystatus"
)

// All returns all controllers, with the defaults of their flags.
func All() []controller.Controller {
	return []controller.Controller{
		attachdetach.New(),
		bootstrapsigner.New(),
		clusterroleaggregation.New(),
		clustertrustbundlepublisher.New(),
		cronjob.New(),
		csrapproving.New(),
		csrcleaner.New(),
		csrsigning.New(),
		daemonset.New(),
		deployment.New(),
		devicetainteviction.New(),
		disruption.New(),
		endpoints.New(),
		endpointslice.New(),
		endpointslicemirroring.New(),
		ephemeralvolume.New(),
		garbagecollector.New(),
		hostloadbalancer.New(),
		horizontalpodautoscaler.New(),
		job.New(),
		legacytokencleaner.New(),
		localpathprovisioner.New(),
		namespace.New(),
		nodeipam.New(),
		nodelifecycle.New(),
		persistentvolumebinder.New(),
		persistentvolumeexpander.New(),
		podcertificaterequestcleaner.New(),
		podgc.New(),
		podgroupprotection.New(),
		pvcprotection.New(),
		pvprotection.New(),
		replicaset.New(),
		replicaset.NewForReplicationControllers(),
		resourceclaim.New(),
		resourcepoolstatusrequest.New(),
		resourcequota.New(),
		rootcapublisher.New(),
		scheduler.New(),
		serviceaccount.New(),
		serviceaccounttoken.New(),
		servicecidr.New(),
		statefulset.New(),
		storageversionmigrator.New(),
		tainteviction.New(),
		tokencleaner.New(),
		ttl.New(),
		ttlafterfinished.New(),
		vacprotection.New(),
		validatingadmissionpolicystatus.New(),
	}
}

// Gates returns the feature gates of all controllers.
var Gates = sync.OnceValue(func() []string {
	var gates []string
	for _, c := range All() {
		if c.Gate != "" {
			gates = append(gates, c.Gate)
		}
		gates = append(gates, c.FurtherGates...)
		gates = append(gates, c.ReleaseGates...)
	}
	return gates
})
