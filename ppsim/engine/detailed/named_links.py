"""Links by common name: latency in microseconds and GB/s in one direction, of one device or card.

Bandwidths are the vendors' figures, halved if they count both directions; that of PCIe is what
copies reach. Latencies are typical of NCCL and RCCL inside a node and over InfiniBand, and of TCP
over Ethernet; none was measured by ppsim.
"""

NAMED: dict[str, tuple[float, float]] = {
    "nvlink2": (5, 150),  # V100
    "nvlink3": (5, 300),  # A100
    "nvlink3-a800": (5, 200),
    "nvlink4": (5, 450),  # H100, H200, H20
    "nvlink4-h800": (5, 200),
    "nvlink5": (5, 900),  # B200, B300, GB200, GB300
    "xgmi-mi250x": (5, 50),  # between two modules; 200 inside one
    "xgmi-mi300x": (5, 448),  # seven links of 64
    "pcie3": (10, 12),
    "pcie4": (10, 25),
    "pcie5": (10, 50),
    "slingshot-200": (10, 25),
    **{f"ib-{gbit}": (10, gbit / 8) for gbit in (100, 200, 400, 800)},
    **{f"roce-{gbit}": (15, gbit / 8) for gbit in (100, 200, 400, 800)},
    **{f"ethernet-{gbit}": (50, gbit / 8) for gbit in (10, 25, 100)},
}
