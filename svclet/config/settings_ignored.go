package config

// ignoredSettings are accepted and have no effect: other components do their work, or
// it is obsolete.
func ignoredSettings() []Setting {
	const noCloud = "there are no cloud providers in svclet"
	return []Setting{
		{Flag: "make-iptables-util-chains", Field: "makeIPTablesUtilChains", Deprecated: true, NoEffect: "svclet does not touch iptables", Usage: "Create the iptables chains that other components rely on."},
		{Field: "iptablesMasqueradeBit", Rule: from(0, 31), NoEffect: "svclet does not touch iptables", Usage: "Bit of the packet mark."},
		{Field: "iptablesDropBit", Rule: from(0, 31), NoEffect: "svclet does not touch iptables", Usage: "Bit of the packet mark."},
		{Field: "showHiddenMetricsForVersion", NoEffect: "svclet hides no metrics",
			Usage: "Previous minor release, such as 1.35, whose hidden metrics are shown."},
		{Flag: "cloud-config", Deprecated: true, fallback: "", NoEffect: noCloud, Usage: "Configuration of the cloud provider. Removal in 1.24 or later."},
		{Flag: "experimental-mounter-path", Deprecated: true, fallback: "mount", NoEffect: "svclet mounts by itself", Usage: "Path to the mounter binary. Removal in 1.24 or later."},
	}
}
