"""Links by the names people use: latency in microseconds and GB/s in one direction, of one device
or one card.

Bandwidths are the makers' figures, halved where they count both directions; PCIe as copies reach
it. Latencies are of the size usual for NCCL and RCCL inside a node and over InfiniBand, and for TCP
over Ethernet; none is measured here.
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
