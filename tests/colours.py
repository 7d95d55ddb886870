"""How different two colours look: CIEDE2000, also to eyes without one of the three kinds of cones
(Machado 2009).
"""

import numpy as np

# Linear RGB as seen with normal vision, and without red, green or blue cones.
VISIONS = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]
WHITE = [0.95047, 1.0, 1.08883]


def lab(colour, vision="normal"):
    """CIE L*a*b* of ``#rrggbb`` as that vision sees it."""
    code = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISIONS[vision]) @ linear, 0, 1)
    x, y, z = (
        value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29
        for value in np.array(TO_XYZ) @ seen / WHITE
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(first, second, vision="normal"):
    """CIEDE2000 (Sharma, Wu and Dalal 2005) of two colours ``#rrggbb``."""
    return difference_of_lab(lab(first, vision), lab(second, vision))


def difference_of_lab(first, second):
    """CIEDE2000 of two colours in L*a*b*."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    grey = 1.5 - 0.5 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    c1, c2 = np.hypot(grey * a1, b1), np.hypot(grey * a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, grey * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = h1 + h2 if c1 * c2 == 0 else (h1 + turn / 2) % 360
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    cosines = [
        factor * np.cos(np.radians(times * hue + shift)) for factor, times, shift in HUE_TERMS
    ]
    by_light = 1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    by_chroma, by_hue = 1 + 0.045 * chroma, 1 + 0.015 * chroma * (1 + sum(cosines))
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    rotation *= np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    parts = (
        (l2 - l1) / by_light,
        (c2 - c1) / by_chroma,
        2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / by_hue,
    )
    return float(np.sqrt(sum(part**2 for part in parts) + rotation * parts[1] * parts[2]))


HUE_TERMS = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
